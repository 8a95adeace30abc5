ARG SERVICES
FROM ${SERVICES}
RUN ln -s prometheus-alertmanager /usr/bin/alertmanager && mkdir -p /alertmanager && chown nobody:nogroup /alertmanager
VOLUME /alertmanager
WORKDIR /alertmanager
USER nobody
EXPOSE 9093
ENTRYPOINT ["alertmanager"]
CMD ["--config.file=/etc/alertmanager/alertmanager.yml", "--storage.path=/alertmanager"]
