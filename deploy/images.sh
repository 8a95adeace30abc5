#!/bin/sh
# Builds both images from the checked-out commit, and tags them with the commit, so that you can go back to an earlier
# version. From anywhere in a clean checkout:
#   sh deploy/images.sh pin                      records the digest of the base image in deploy/node.digest; commit it
#   sh deploy/images.sh [registry.example/team]  builds the images and prints their names
# Without deploy/node.digest it builds nothing, because others can move a tag but not a digest. UNPINNED=1 overrides this.
set -eu
cd "$(dirname "$0")/.."
digest_file=deploy/node.digest
base=$(sed -n 's/^FROM \(node:[^$ ]*\).*/\1/p' deploy/Dockerfile | sort -u)

fail() {
  echo "$1" >&2
  exit 1
}

if [ "${1:-}" = pin ]; then
  # Takes the digest from this pull, because an image may also have digests from other registries.
  docker pull "$base" | sed -n 's/^Digest: /@/p' > "$digest_file.new"
  grep -Eqx '@sha256:[0-9a-f]{64}' "$digest_file.new" || {
    rm "$digest_file.new"
    fail "docker pull reported no digest of $base."
  }
  mv "$digest_file.new" "$digest_file"
  exit
fi

[ -z "$(git status --porcelain)" ] || fail 'The checkout has changes that are not committed: commit them before building.'
digest=
if [ -e "$digest_file" ]; then
  digest=$(cat "$digest_file")
  printf %s "$digest" | grep -Eqx '@sha256:[0-9a-f]{64}' || fail "$digest_file contains no digest: run sh deploy/images.sh pin."
elif [ "${UNPINNED:-}" != 1 ]; then
  fail "The base image $base is not pinned: run sh deploy/images.sh pin, and commit $digest_file."
fi

commit=$(git rev-parse --short=12 HEAD)
for target in core gateway; do
  image=${1:+$1/}animal-store-$target:$commit
  docker build --quiet --file deploy/Dockerfile --target "$target" --build-arg "NODE_DIGEST=$digest" \
    --label "org.opencontainers.image.revision=$commit" --tag "$image" . > /dev/null
  echo "$image"
done
