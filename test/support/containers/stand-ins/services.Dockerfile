# The programs of all stand-ins except Node's, in one installation, and docker-compose.
ARG SUITE
FROM debian:${SUITE}
ARG MAJOR
ENV DEBIAN_FRONTEND=noninteractive
# No service is started, and no database created, while a package is installed.
RUN printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d \
  && mkdir /etc/postgresql-common && echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf \
  && apt-get update -qq \
  && apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold \
    haproxy postgresql-${MAJOR} prometheus prometheus-alertmanager redis-server wget \
  && cd /tmp && apt-get download -qq docker-compose && dpkg -x docker-compose_*.deb compose \
  && mv "$(find compose -type f -size +1M)" /usr/local/lib/docker-compose \
  && rm -rf /tmp/* /var/lib/apt/lists/* /var/cache/apt/*
