#!/bin/sh
# Prints where a key stands: plan, limits, what is left. It costs the key nothing.
exec curl --silent --show-error --fail --header "Authorization: Bearer $API_KEY" "$STORE_URL/v1/limits"
