"""Jobs, queues and the nodes' resources as decisions change them."""
