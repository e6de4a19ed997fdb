"""How proxies rank by the number of labels bought first, and by the target's head."""
