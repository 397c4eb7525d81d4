// The transparency log (Rekor v1): a Merkle tree that grows, promises and proofs of inclusion, signed checkpoints.
// It keeps entries as Rekor does: `hashedrekord` as proposed, `dsse` as digests and signatures.

import { createHash, generateKeyPairSync, sign } from 'node:crypto';

import canonicalize from 'canonicalize';

const TREE = '1234567890123456789';

export function rekor(host, clock) {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const logId = sha256(publicKey.export({ format: 'der', type: 'spki' }));
  const leaves = [];
  const entries = new Map();

  function checkpoint(size, root) {
    const note = `${host} - ${TREE}\n${size}\n${root.toString('base64')}\n`;
    const signature = sign('sha256', Buffer.from(note), privateKey);
    const line = Buffer.concat([logId.subarray(0, 4), signature]).toString('base64');
    return `${note}\n\u2014 ${host} ${line}\n`;
  }

  function add(proposed) {
    const body = Buffer.from(canonicalize(kept(proposed)));
    const leaf = sha256(Buffer.from([0]), body);
    const logIndex = leaves.push(leaf) - 1;
    const root = rootOf(leaves);
    const integratedTime = Math.floor(clock().getTime() / 1000);
    const promised = { body: body.toString('base64'), integratedTime, logID: logId.toString('hex'), logIndex };
    const uuid = BigInt(TREE).toString(16).padStart(16, '0') + leaf.toString('hex');
    const entry = {
      ...promised,
      verification: {
        inclusionProof: {
          checkpoint: checkpoint(leaves.length, root),
          hashes: path(logIndex, leaves).map((hash) => hash.toString('hex')),
          logIndex,
          rootHash: root.toString('hex'),
          treeSize: leaves.length,
        },
        signedEntryTimestamp: sign('sha256', Buffer.from(canonicalize(promised)), privateKey).toString('base64'),
      },
    };
    entries.set(uuid, entry);
    return { uuid, entry };
  }

  return { publicKey, privateKey, logId, add, get: (uuid) => entries.get(uuid) };
}

/** What the log keeps of a proposed entry. */
function kept({ apiVersion, kind, spec }) {
  if (kind === 'hashedrekord') {
    return { apiVersion, kind, spec };
  }
  if (kind !== 'dsse') {
    throw new Error(`this log keeps hashedrekord and dsse, not ${kind}`);
  }
  const { envelope, verifiers } = spec.proposedContent;
  const { payload, signatures } = JSON.parse(envelope);
  const hash = (bytes) => ({ algorithm: 'sha256', value: sha256(bytes).toString('hex') });
  return {
    apiVersion,
    kind,
    spec: {
      envelopeHash: hash(Buffer.from(envelope)),
      payloadHash: hash(Buffer.from(payload, 'base64')),
      signatures: signatures.map(({ sig }, index) => ({ signature: sig, verifier: verifiers[index] })),
    },
  };
}

function sha256(...parts) {
  const hash = createHash('sha256');
  parts.forEach((part) => hash.update(part));
  return hash.digest();
}

/** RFC 6962, 2.1: where a tree of `size` leaves is split. */
function split(size) {
  let left = 1;
  while (left * 2 < size) {
    left *= 2;
  }
  return left;
}

function rootOf(leaves) {
  if (leaves.length === 1) {
    return leaves[0];
  }
  const middle = split(leaves.length);
  return sha256(Buffer.from([1]), rootOf(leaves.slice(0, middle)), rootOf(leaves.slice(middle)));
}

/** RFC 6962, 2.1.1: the hashes that lead from a leaf to the root. */
function path(index, leaves) {
  if (leaves.length === 1) {
    return [];
  }
  const middle = split(leaves.length);
  return index < middle
    ? [...path(index, leaves.slice(0, middle)), rootOf(leaves.slice(middle))]
    : [...path(index - middle, leaves.slice(middle)), rootOf(leaves.slice(0, middle))];
}
