"""One cycle's accounting, the votes of plugins, and the statement by which a decision is made or undone whole."""
