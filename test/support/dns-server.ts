import dgram from 'node:dgram';
import dns from 'node:dns';
import { once } from 'node:events';
import { cleanUp } from './clean-up.ts';

export interface SrvAnswer {
  readonly target: string;
  readonly port: number;
  readonly priority?: number;
}

const TYPE_SRV = 33;
const [NO_ERROR, NO_SUCH_NAME] = [0, 3];

/** Starts a DNS server for SRV records. This process uses it until the test ends. */
export async function startDnsServer() {
  const names = new Map<string, readonly SrvAnswer[]>();
  let asked = 0;
  const socket = dgram.createSocket('udp4', (question, from) => {
    asked += 1;
    socket.send(answerTo(question, names), from.port, from.address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  const before = dns.getServers();
  dns.setServers([`127.0.0.1:${socket.address().port}`]);
  cleanUp(() => {
    dns.setServers(before);
    socket.close();
  });
  return {
    /** Sets the records of a name. Without records, the name does not exist. */
    set: (name: string, records: readonly SrvAnswer[]) => void names.set(name, records),
    /** The number of queries so far. */
    asked: () => asked,
  };
}

/** Builds an answer: a header, a copy of the question, and the records (RFC 1035 §4.1, RFC 2782). */
function answerTo(question: Buffer, names: ReadonlyMap<string, readonly SrvAnswer[]>): Buffer {
  const { name, end } = nameIn(question);
  const records = names.get(name) ?? [];
  const header = Buffer.alloc(12);
  header.writeUInt16BE(question.readUInt16BE(0), 0);
  header.writeUInt16BE(0x8180 | (records.length > 0 ? NO_ERROR : NO_SUCH_NAME), 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(records.length, 6);
  return Buffer.concat([header, question.subarray(12, end + 4), ...records.map(recordOf)]);
}

/** The name in a question, and where it ends. */
function nameIn(question: Buffer): { name: string; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = question[at] ?? 0; length > 0; length = question[at] ?? 0) {
    labels.push(question.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join('.').toLowerCase(), end: at + 1 };
}

function recordOf({ target, port, priority = 0 }: SrvAnswer): Buffer {
  const labels = target
    .split('.')
    .map((label) => Buffer.from(`${String.fromCharCode(label.length)}${label}`, 'latin1'));
  const data = Buffer.concat([Buffer.alloc(6), ...labels, Buffer.alloc(1)]);
  data.writeUInt16BE(priority, 0);
  data.writeUInt16BE(port, 4);
  const head = Buffer.alloc(12);
  // This is a pointer to the name in the question.
  head.writeUInt16BE(0xc00c, 0);
  head.writeUInt16BE(TYPE_SRV, 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(data.length, 10);
  return Buffer.concat([head, data]);
}
