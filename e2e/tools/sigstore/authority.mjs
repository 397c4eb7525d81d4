// The certificate authority (Fulcio): certificates of ten minutes for whoever an identity token names, each with a promise of the CT log in it.
// Who may have a token is not here (issuer.mjs).

import 'reflect-metadata';
import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto';

import { Crypto } from '@peculiar/webcrypto';
import * as x509 from '@peculiar/x509';
import { fulcioHandler, initializeCTLog } from '@sigstore/mock';

export const crypto = new Crypto();
const P256 = { name: 'ECDSA', namedCurve: 'P-256' };
const P384 = { name: 'ECDSA', namedCurve: 'P-384' };
const SCT_LIST = '1.3.6.1.4.1.11129.2.4.2';
/** The build signer of a CI token, which is the subject of its certificate. */
const BUILD_SIGNER_URI = '1.3.6.1.4.1.57264.1.9';
const MINUTE = 60_000;
const YEAR = 365 * 24 * 60 * MINUTE;

/** A self-signed authority, and under it another, which issues. */
export async function authorities(name, algorithm, hash, { timestamping = false } = {}) {
  const signingAlgorithm = { name: 'ECDSA', hash };
  const validity = { notBefore: new Date(Date.now() - YEAR), notAfter: new Date(Date.now() + 10 * YEAR) };
  const rootKeys = await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
  const rootName = `CN=${name} root,O=sigstore.example.com`;
  const root = await x509.X509CertificateGenerator.createSelfSigned(
    {
      serialNumber: serial(),
      name: rootName,
      ...validity,
      signingAlgorithm,
      keys: rootKeys,
      extensions: [
        new x509.BasicConstraintsExtension(true, 1, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.cRLSign | x509.KeyUsageFlags.keyCertSign, true),
        await x509.SubjectKeyIdentifierExtension.create(rootKeys.publicKey, false, crypto),
      ],
    },
    crypto,
  );
  const keys = await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
  const subject = `CN=${name},O=sigstore.example.com`;
  const usages = timestamping
    ? [
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.timeStamping], true),
      ]
    : [
        new x509.BasicConstraintsExtension(true, 0, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.cRLSign | x509.KeyUsageFlags.keyCertSign, true),
        new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.codeSigning]),
      ];
  const certificate = await x509.X509CertificateGenerator.create(
    {
      serialNumber: serial(),
      subject,
      issuer: rootName,
      ...validity,
      signingAlgorithm,
      publicKey: keys.publicKey,
      signingKey: rootKeys.privateKey,
      extensions: [
        ...usages,
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey, false, crypto),
        await x509.AuthorityKeyIdentifierExtension.create(rootKeys.publicKey, false, crypto),
      ],
    },
    crypto,
  );
  return { root, certificate, subject, keys };
}

/** Both paths by which clients ask for certificates. `clock` gives the time of the authority. */
export async function fulcio(issuer, clock) {
  const { root, certificate, subject, keys } = await authorities('fulcio', P384, 'SHA-384');
  const ctKeys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const spki = await crypto.subtle.exportKey('spki', keys.publicKey);
  const issuerId = createHash('sha256').update(Buffer.from(spki)).digest();
  const signingAlgorithm = { name: 'ECDSA', hash: 'SHA-384' };

  async function issueCertificate({ publicKey, subjectAltName, extensions }) {
    const key = await crypto.subtle.importKey('spki', publicKey, P256, true, ['verify']);
    const now = clock();
    const signer = extensions.find(({ oid }) => oid === BUILD_SIGNER_URI)?.value;
    const name = signer ?? subjectAltName;
    const type = !signer && name.includes('@') && !name.includes('://') ? 'email' : 'url';
    const content = {
      serialNumber: serial(),
      notBefore: now,
      notAfter: new Date(now.getTime() + 10 * MINUTE),
      issuer: subject,
      publicKey: key,
      signingAlgorithm,
      signingKey: keys.privateKey,
      extensions: [
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.codeSigning]),
        await x509.SubjectKeyIdentifierExtension.create(key, false, crypto),
        await x509.AuthorityKeyIdentifierExtension.create(keys.publicKey, false, crypto),
        new x509.SubjectAlternativeNameExtension([{ type, value: name }], true),
        ...extensions.map(({ oid, value, legacy }) =>
          new x509.Extension(oid, false, legacy ? Buffer.from(value) : utf8String(value)),
        ),
      ],
    };
    const before = await x509.X509CertificateGenerator.create(content, crypto);
    const ctLog = await initializeCTLog(ctKeys, now);
    const promise = Buffer.from(await ctLog.log(before.rawData, issuerId));
    content.extensions.push(new x509.Extension(SCT_LIST, false, sctList(promise)));
    const leaf = await x509.X509CertificateGenerator.create(content, crypto);
    return Buffer.from(leaf.rawData);
  }

  const ca = { issueCertificate, rootCertificate: Buffer.from(certificate.rawData) };
  const bySubject = fulcioHandler(ca).fn;
  const byEmail = fulcioHandler(ca, { subjectClaim: 'email' }).fn;
  const chain = [certificate, root];
  const pems = chain.map((one) => `${one.toString('pem')}\n`);

  /** The certificate and those above it as PEM texts, or the refusal. */
  async function issue(request) {
    const claims = await issuer.check(request.credentials.oidcIdentityToken);
    const handler = claims.email ? byEmail : bySubject;
    const { statusCode, response } = await handler(JSON.stringify(request));
    if (statusCode !== 201) {
      throw new Error(response);
    }
    return [JSON.parse(response).signedCertificateEmbeddedSct.chain.certificates[0], ...pems];
  }

  return {
    chain,
    ctKeys,
    /** As cosign 3 and others ask; the token is in the request or in a header. */
    v2: async (body, token) => {
      const request = JSON.parse(body);
      const certificates = await issue({ ...request, credentials: request.credentials ?? { oidcIdentityToken: token } });
      return { signedCertificateEmbeddedSct: { chain: { certificates } } };
    },
    /** As cosign 2 asks: the token in a header, PEM for an answer. */
    v1: async (body, token) => {
      const content = Buffer.from(JSON.parse(body).publicKey.content, 'base64').toString();
      const request = { credentials: { oidcIdentityToken: token }, publicKeyRequest: { publicKey: { content } } };
      return (await issue(request)).join('');
    },
  };
}

export function pem(label, base64) {
  return `-----BEGIN ${label}-----\n${base64.replace(/(.{64})(?=.)/g, '$1\n')}\n-----END ${label}-----\n`;
}

function serial() {
  // Positive, and never beginning with a zero byte.
  const bytes = randomBytes(16);
  bytes[0] = (bytes[0] & 0x3f) | 0x40;
  return bytes.toString('hex');
}

function der(tag, content) {
  const size = content.length;
  const length = size < 128 ? [size] : size < 256 ? [0x81, size] : [0x82, size >> 8, size & 255];
  return Buffer.concat([Buffer.from([tag, ...length]), content]);
}

function utf8String(text) {
  return der(0x0c, Buffer.from(text));
}

/** RFC 6962, 3.3; the promise comes with its own length before it. */
function sctList(promise) {
  const size = Buffer.alloc(2);
  size.writeUInt16BE(promise.length);
  return der(0x04, Buffer.concat([size, promise]));
}
