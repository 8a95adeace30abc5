import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeDashboard } from './dashboard.ts';

/** `npm run generate`: writes the dashboard that Grafana reads. */
const FILE = join(import.meta.dirname, '../dashboards/gateway.json');
writeFileSync(FILE, `${JSON.stringify(describeDashboard(), undefined, 2)}\n`);
