// The issuer of identity tokens (OpenID Connect): any claims for whoever asks, in the name of any issuer. For tests alone.
// Whoever comes to log in is let in as ana@example.com: in a browser at once, with a device when somebody has typed its code.

import { createHash, generateKeyPairSync, randomBytes, sign, verify } from 'node:crypto';

const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

export function issuer(url) {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const jwk = publicKey.export({ format: 'jwk' });
  const kid = createHash('sha256').update(JSON.stringify(jwk)).digest('base64url');
  /** Logins by their codes. */
  const logins = new Map();
  const refuse = (error) => {
    throw Object.assign(new Error(error), { answer: { error } });
  };
  const begin = (asked, more) => {
    if (asked.get('code_challenge_method') !== 'S256' || !asked.get('scope').split(' ').includes('openid')) {
      refuse('invalid_request');
    }
    const code = randomBytes(16).toString('hex');
    logins.set(code, { client: asked.get('client_id'), challenge: asked.get('code_challenge'), ...more });
    return code;
  };
  const self = {
    configuration: {
      issuer: url,
      jwks_uri: `${url}/keys`,
      authorization_endpoint: `${url}/login`,
      token_endpoint: `${url}/login/token`,
      device_authorization_endpoint: `${url}/login/device`,
      code_challenge_methods_supported: ['S256'],
      response_types_supported: ['code'],
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

    /** A browser comes to log in; where it is sent back to. */
    login(asked) {
      const [redirect, nonce] = [asked.get('redirect_uri'), asked.get('nonce')];
      if (!/^http:\/\/localhost:\d+\/auth\/callback$/.test(redirect) || asked.get('response_type') !== 'code') {
        refuse('invalid_request');
      }
      const code = begin(asked, { redirect, nonce, granted: true });
      return `${redirect}?${new URLSearchParams({ code, state: asked.get('state') })}`;
    },

    /** A device begins. */
    device(asked) {
      const code = begin(asked, { granted: false });
      const page = `${url}/login/device/page`;
      const answer = { device_code: code, user_code: code.slice(0, 8), verification_uri: page, expires_in: 300 };
      return { ...answer, verification_uri_complete: `${page}?user_code=${code.slice(0, 8)}`, interval: 1 };
    },

    /** Somebody types the code of a device. */
    visit(asked) {
      for (const [code, login] of logins) {
        login.granted ||= code.startsWith(asked.get('user_code'));
      }
    },

    /** A code is redeemed, once, by whoever asked for it. */
    redeem(asked) {
      const code = asked.get('code') ?? asked.get('device_code');
      const login = logins.get(code) ?? refuse('invalid_grant');
      if (!login.granted) {
        refuse('authorization_pending');
      }
      logins.delete(code);
      const challenge = createHash('sha256').update(asked.get('code_verifier') ?? '').digest('base64url');
      const same = login.client === asked.get('client_id') && login.challenge === challenge;
      if (!same || (login.redirect && login.redirect !== asked.get('redirect_uri'))) {
        refuse('invalid_grant');
      }
      const email = 'ana@example.com';
      const claims = { aud: login.client, sub: email, email, email_verified: true };
      return { id_token: self.mint(login.nonce ? { ...claims, nonce: login.nonce } : claims), token_type: 'Bearer', access_token: 'none' };
    },
  };
  return self;
}
