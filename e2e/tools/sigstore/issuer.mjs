// The issuer of identity tokens (OpenID Connect): any claims for whoever asks, in the name of any issuer. For tests alone.

import { createHash, generateKeyPairSync, sign, verify } from 'node:crypto';

const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

export function issuer(url) {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const jwk = publicKey.export({ format: 'jwk' });
  const kid = createHash('sha256').update(JSON.stringify(jwk)).digest('base64url');
  return {
    configuration: {
      issuer: url,
      jwks_uri: `${url}/keys`,
      token_endpoint: `${url}/token`,
      response_types_supported: ['id_token'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: ['ES256'],
    },
    keys: { keys: [{ ...jwk, kid, alg: 'ES256', use: 'sig' }] },

    /** A token with these claims; what they do not say is filled in. */
    mint(claims) {
      const now = Math.floor(Date.now() / 1000);
      const all = { iss: url, aud: 'sigstore', sub: 'somebody', iat: now, nbf: now, exp: now + 600, ...claims };
      const content = `${encode({ alg: 'ES256', typ: 'JWT', kid })}.${encode(all)}`;
      const signature = sign('sha256', Buffer.from(content), { key: privateKey, dsaEncoding: 'ieee-p1363' });
      return `${content}.${signature.toString('base64url')}`;
    },

    /** The claims of a token that is ours and still good. */
    async check(token) {
      const [header, claims, signature] = String(token).split('.');
      const content = Buffer.from(`${header}.${claims}`);
      const key = { key: publicKey, dsaEncoding: 'ieee-p1363' };
      if (!signature || !verify('sha256', content, key, Buffer.from(signature, 'base64url'))) {
        throw new Error('the identity token is not signed by the issuer');
      }
      const said = JSON.parse(Buffer.from(claims, 'base64url'));
      if (said.aud !== 'sigstore' || said.exp * 1000 < Date.now()) {
        throw new Error('the identity token is for somebody else, or has expired');
      }
      return said;
    },
  };
}
