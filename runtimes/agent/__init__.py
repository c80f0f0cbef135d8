"""The agent: a language model that decides, one action a turn, what the host does to a model that will not convert."""
