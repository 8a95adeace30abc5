/** Parts of queries that several panels share. `$instance` and `$plan` are the dashboard's variables. */

export const GATEWAY = 'instance=~"$instance"';
export const PLAN = `${GATEWAY},plan=~"$plan"`;
export const quantile = (of: number, by: string, buckets: string, where = GATEWAY) =>
  `histogram_quantile(${of}, sum by (${by}) (${buckets}{${where}}))`;
export const requests = (where: string) => `sum(gateway:requests:rate1m{${where}})`;
/** 505 answers a client's protocol. */
export const FAILED = 'status=~"5..",status!="505"';
export const refusedShare = (by: string) =>
  `sum by (${by}) (gateway:decisions:rate1m{${PLAN},outcome=~"refused_.*"}) / (sum by (${by}) (gateway:decisions:rate1m{${PLAN},outcome=~"admitted|refused_.*"}) > 0)`;
export const gauges = (metric: string, by: string, of: 'max' | 'sum' | 'min' = 'max') =>
  `${of} by (${by}) (${metric}{${GATEWAY}})`;
