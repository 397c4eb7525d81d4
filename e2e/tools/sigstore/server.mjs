// All services of a sigstore at one address: `node server.mjs PORT FOLDER`. It listens on loopback once the files in FOLDER are written.
// The services themselves are in the other files.

import { createServer } from 'node:http';

import { fulcio } from './authority.mjs';
import { issuer } from './issuer.mjs';
import { rekor } from './log.mjs';
import { write } from './roots.mjs';
import { timestamps } from './timestamps.mjs';

const LIMIT = 8 * 1024 * 1024;

const [port, folder] = process.argv.slice(2);
const host = `127.0.0.1:${port}`;
const url = `http://${host}`;

/** Seconds by which a service's clock is wrong; tests set them. */
const offsets = { ca: 0, log: 0 };
const clock = (service) => () => new Date(Date.now() + offsets[service] * 1000);

const oidc = issuer(url);
const ca = await fulcio(oidc, clock('ca'));
const log = rekor(host, clock('log'));
const tsa = await timestamps(folder);
write(folder, url, { ca, log, tsa });

const json = (body, status = 200, headers = {}) => ({ status, type: 'application/json', body: JSON.stringify(body), headers });
const bearer = (request) => (request.headers.authorization ?? '').replace(/^Bearer /, '');

const page = (text) => ({ status: 200, type: 'text/html', body: `<!doctype html><p>${text}\n` });
const form = (body) => new URLSearchParams(body.toString());
const query = (request) => new URL(request.url, url).searchParams;

const routes = {
  'GET /login': (body, request) => ({ ...page('Go back.'), status: 302, headers: { location: oidc.login(query(request)) } }),
  'POST /login/token': (body) => json(oidc.redeem(form(body))),
  'POST /login/device': (body) => json(oidc.device(form(body))),
  'GET /login/device/page': (body, request) => (oidc.visit(query(request)), page('Thank you.')),
  'GET /.well-known/openid-configuration': () => json(oidc.configuration),
  'GET /keys': () => json(oidc.keys),
  'POST /token': (body) => ({ status: 200, type: 'text/plain', body: oidc.mint(JSON.parse(body)) }),
  'POST /clocks': (body) => json(Object.assign(offsets, JSON.parse(body))),
  'POST /api/v2/signingCert': async (body, request) => json(await ca.v2(body, bearer(request))),
  'POST /api/v1/signingCert': async (body, request) => ({
    status: 201,
    type: 'application/pem-certificate-chain',
    body: await ca.v1(body, bearer(request)),
  }),
  'POST /api/v1/timestamp': async (body) => ({
    status: 201,
    type: 'application/timestamp-reply',
    body: await tsa.reply(body),
  }),
  'POST /api/v1/log/entries': (body) => {
    const { uuid, entry } = log.add(JSON.parse(body));
    const headers = { etag: uuid, location: `/api/v1/log/entries/${uuid}` };
    return json({ [uuid]: entry }, 201, headers);
  },
  'GET /api/v1/log/publicKey': () => ({
    status: 200,
    type: 'application/x-pem-file',
    body: log.publicKey.export({ format: 'pem', type: 'spki' }),
  }),
};

async function answer(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > LIMIT) {
      return json({ code: 413, message: 'too large' }, 413);
    }
    chunks.push(chunk);
  }
  const path = new URL(request.url, url).pathname;
  const entry = path.startsWith('/api/v1/log/entries/') && log.get(path.split('/').pop());
  if (entry) {
    return json({ [path.split('/').pop()]: entry });
  }
  const route = routes[`${request.method} ${path}`];
  return route ? route(Buffer.concat(chunks), request) : json({ code: 404, message: `no ${request.method} ${path}` }, 404);
}

createServer(async (request, response) => {
  const { status, type, body, headers } = await answer(request).catch((error) =>
    json(error.answer ?? { code: 400, message: String(error.message) }, 400),
  );
  console.log(`${new Date().toISOString()} ${request.method} ${request.url} ${status}${status >= 400 ? ` ${body}` : ''}`);
  response.writeHead(status, { 'content-type': type, ...headers }).end(body);
}).listen(Number(port), '127.0.0.1');
