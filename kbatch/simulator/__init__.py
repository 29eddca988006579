"""The engine in virtual time: manifests in, decisions and their consequences out.

`kbatch.simulator.manifests` reads, `kbatch.simulator.run` runs, `kbatch.simulator.result` and `kbatch.simulator.report`
say what happened. Nothing here decides: every decision is `kbatch.engine.cycle`'s, on the same model as the live one.
"""
