#!/bin/sh
# Prints the plan, the limits and the remaining requests for a key. The request costs no token.
exec curl --silent --show-error --fail --header "Authorization: Bearer $API_KEY" "$STORE_URL/v1/limits"
