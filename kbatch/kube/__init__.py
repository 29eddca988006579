"""The API server: credentials, typed objects, lists and watches, writes, Events, leader election.

    async with Client(load_credentials(), user_agent="kbatch-example") as client:
        async for batch in informer(client, PODS, field_selector="spec.schedulerName=kube-batch"):
            for event in batch.events:
                model.apply(event)

Everything takes an `Api`, which `Client` is; tests give it something else.
"""
