ARG SERVICES
FROM ${SERVICES}
RUN mkdir -p /prometheus && chown nobody:nogroup /prometheus
VOLUME /prometheus
WORKDIR /prometheus
USER nobody
EXPOSE 9090
ENTRYPOINT ["prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
