# A slim Node image: the project's own Node, and npm.
ARG SUITE
FROM debian:${SUITE}
COPY node /usr/local/bin/node
COPY npm /usr/local/lib/node_modules/npm
# Node has been linked against libatomic since version 25, and Node's own images contain it.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends libatomic1 && rm -rf /var/lib/apt/lists/*
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm && useradd --create-home --uid 1000 node
CMD ["node"]
