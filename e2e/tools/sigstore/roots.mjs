// What clients are told: the root of trust, and where the services are.
// The key files are for tests that forge what only an authority or a log could sign.

import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Years before every certificate and entry, whatever a test sets the clocks to. */
const START = '2020-01-01T00:00:00Z';
const subject = (commonName) => ({ organization: 'sigstore.example.com', commonName });

export function trustedRoot(url, { ca, log, tsa }) {
  const certChain = (chain) => ({
    certificates: chain.map((one) => ({ rawBytes: Buffer.from(one.rawData).toString('base64') })),
  });
  const logInstance = (publicKey) => {
    const spki = publicKey.export({ format: 'der', type: 'spki' });
    return {
      baseUrl: url,
      hashAlgorithm: 'SHA2_256',
      publicKey: {
        rawBytes: spki.toString('base64'),
        keyDetails: 'PKIX_ECDSA_P256_SHA_256',
        validFor: { start: START },
      },
      logId: { keyId: createHash('sha256').update(spki).digest('base64') },
    };
  };
  return {
    mediaType: 'application/vnd.dev.sigstore.trustedroot+json;version=0.1',
    tlogs: [logInstance(log.publicKey)],
    certificateAuthorities: [
      { subject: subject('fulcio'), uri: url, certChain: certChain(ca.chain), validFor: { start: START } },
    ],
    ctlogs: [logInstance(ca.ctKeys.publicKey)],
    timestampAuthorities: [
      { subject: subject('tsa'), uri: url, certChain: certChain(tsa.chain), validFor: { start: START } },
    ],
  };
}

export function signingConfig(url) {
  const service = (address) => [
    { url: address, majorApiVersion: 1, validFor: { start: START }, operator: 'sigstore.example.com' },
  ];
  return {
    mediaType: 'application/vnd.dev.sigstore.signingconfig.v0.2+json',
    caUrls: service(url),
    oidcUrls: service(url),
    rekorTlogUrls: service(url),
    rekorTlogConfig: { selector: 'ANY' },
    tsaUrls: service(`${url}/api/v1/timestamp`),
    tsaConfig: { selector: 'ANY' },
  };
}

export function write(folder, url, services) {
  const { ca, log } = services;
  const json = (value) => `${JSON.stringify(value, null, 2)}\n`;
  const publicPem = (key) => key.export({ format: 'pem', type: 'spki' });
  const privatePem = (key) => key.export({ format: 'pem', type: 'pkcs8' });
  const files = {
    'trusted_root.json': json(trustedRoot(url, services)),
    'signing_config.json': json(signingConfig(url)),
    // What cosign 2 is told in its own variables.
    'fulcio.pem': ca.chain.map((one) => `${one.toString('pem')}\n`).join(''),
    'rekor.pub': publicPem(log.publicKey),
    'rekor.key': privatePem(log.privateKey),
    'ctlog.pub': publicPem(ca.ctKeys.publicKey),
    'ctlog.key': privatePem(ca.ctKeys.privateKey),
  };
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(join(folder, name), content);
  }
}
