"""The tabular experiments of Mycroft: tree models, tens of owners."""
