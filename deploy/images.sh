#!/bin/sh
# Builds both images of the commit that is checked out, with the commit as their tag, so that there is something to go
# back to. From anywhere in a clean checkout:
#   sh deploy/images.sh pin                      records the digest of the base image in deploy/node.digest: commit it
#   sh deploy/images.sh [registry.example/team]  builds; prints the names of the images
# Without deploy/node.digest it builds nothing: a tag can be moved by others, a digest cannot. UNPINNED=1 builds anyway.
set -eu
cd "$(dirname "$0")/.."
digest_file=deploy/node.digest
base=$(sed -n 's/^FROM \(node:[^$ ]*\).*/\1/p' deploy/Dockerfile | sort -u)

fail() {
  echo "$1" >&2
  exit 1
}

if [ "${1:-}" = pin ]; then
  # What was pulled now: an image may have other digests too, of other registries.
  docker pull "$base" | sed -n 's/^Digest: /@/p' > "$digest_file.new"
  grep -Eqx '@sha256:[0-9a-f]{64}' "$digest_file.new" || {
    rm "$digest_file.new"
    fail "$base has no digest that could be noted."
  }
  mv "$digest_file.new" "$digest_file"
  exit
fi

[ -z "$(git status --porcelain)" ] || fail 'The checkout has changes that are in no commit: an image of it could not be found again.'
digest=
if [ -e "$digest_file" ]; then
  digest=$(cat "$digest_file")
  printf %s "$digest" | grep -Eqx '@sha256:[0-9a-f]{64}' || fail "$digest_file holds no digest: run sh deploy/images.sh pin."
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
