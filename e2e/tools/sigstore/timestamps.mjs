// The timestamp authority (RFC 3161): its certificates, and `openssl ts` for the answers. @sigstore/mock's own takes no nonces of 64 bits.

import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { authorities, crypto, pem } from './authority.mjs';

const run = promisify(execFile);

const CONFIGURATION = `
[tsa]
default_tsa = settings
[settings]
serial = tsa.serial
signer_digest = sha256
default_policy = 1.3.6.1.4.1.57264.2
digests = sha256, sha384, sha512
accuracy = secs:1
ess_cert_id_alg = sha256
`;

export async function timestamps(folder) {
  const algorithm = { name: 'ECDSA', namedCurve: 'P-256' };
  const { root, certificate, keys } = await authorities('tsa', algorithm, 'SHA-256', { timestamping: true });
  const key = Buffer.from(await crypto.subtle.exportKey('pkcs8', keys.privateKey)).toString('base64');
  writeFileSync(join(folder, 'tsa.crt'), certificate.toString('pem'));
  writeFileSync(join(folder, 'tsa.key'), pem('PRIVATE KEY', key));
  writeFileSync(join(folder, 'tsa.cnf'), CONFIGURATION);
  writeFileSync(join(folder, 'tsa.serial'), '01\n');

  // One after the other: they share a serial number.
  let last = Promise.resolve();
  let count = 0;
  async function answer(query) {
    const [asked, said] = ['tsq', 'tsr'].map((kind) => join(folder, `tsa.${count}.${kind}`));
    count += 1;
    await writeFile(asked, query);
    const files = ['-inkey', 'tsa.key', '-signer', 'tsa.crt', '-queryfile', asked, '-out', said];
    await run('openssl', ['ts', '-reply', '-config', 'tsa.cnf', '-section', 'settings', ...files], { cwd: folder });
    return readFile(said);
  }
  return {
    chain: [certificate, root],
    reply: (query) => {
      const mine = last.then(() => answer(query));
      last = mine.catch(() => {});
      return mine;
    },
  };
}
