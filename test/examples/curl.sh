#!/bin/sh
# Lists the available pets. On 429 and 503, curl retries after the time in Retry-After, at most five times.
exec curl --silent --show-error --fail --retry 5 \
  --header "Authorization: Bearer $API_KEY" \
  "$STORE_URL/v1/pets?status=available"
