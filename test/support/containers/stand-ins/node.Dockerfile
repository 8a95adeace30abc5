# Node's slim image: the Node that the project brings, and npm.
ARG SUITE
FROM debian:${SUITE}
COPY node /usr/local/bin/node
COPY npm /usr/local/lib/node_modules/npm
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm && useradd --create-home --uid 1000 node
CMD ["node"]
