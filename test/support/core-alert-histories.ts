import type { AlertHistories } from './alert-histories.ts';

export const UP = { 'up{job="gateway",instance="a"}': '1x30', 'up{job="core",instance="c"}': '1x30' };
const coreRequests = (operation: string, status: string) =>
  `core_requests_total{operation="${operation}",status="${status}",instance="c"}`;
const UNREACHABLE = 'gateway_upstream_errors_total{instance="a",core="http://c",kind="unreachable"}';
const STORE_ERRORS = 'core_store_errors_total{instance="c",kind="unavailable"}';

/** The histories of alerts on cores (alert-histories.ts). */
export const CORE_ALERT_HISTORIES: Readonly<Record<string, AlertHistories>> = {
  CoreDown: {
    fires: [{ ...UP, 'up{job="core",instance="c"}': '1x10 0x20' }, { 'up{job="gateway",instance="a"}': '1x30' }],
    stays: [UP],
  },
  CoreUnreachable: {
    fires: [{ [UNREACHABLE]: '0x15 0+1x15' }],
    stays: [{ [UNREACHABLE]: '7x30' }, { [UNREACHABLE.replace('unreachable', 'timeout')]: '0+5x30' }],
  },
  CoreErrors: {
    fires: [{ [coreRequests('listPets', '200')]: '0+97x30', [coreRequests('createPet', '500')]: '0+3x30' }],
    stays: [
      { [coreRequests('listPets', '200')]: '0+99x30', [coreRequests('createPet', '500')]: '0+1x30' },
      { [coreRequests('listPets', '200')]: '0+99x30', [coreRequests('readyz', '503')]: '0+99x30' },
    ],
  },
  CoreStoreFailing: {
    fires: [{ [STORE_ERRORS]: '0x15 0+1x15' }],
    stays: [{ [STORE_ERRORS]: '5x30' }],
  },
};
