#!/bin/bash
# AsyncClient.makedirs has no exist_ok, Client.makedirs has.
${PY:-python3} -c "
import braidfs, inspect
print('Client     ', inspect.signature(braidfs.Client.makedirs)); print('AsyncClient', inspect.signature(braidfs.AsyncClient.makedirs))
assert inspect.signature(braidfs.Client.makedirs).parameters.keys() == inspect.signature(braidfs.AsyncClient.makedirs).parameters.keys()"
