"""Mycroft: which samples of an owner are worth having, and which owners?"""
