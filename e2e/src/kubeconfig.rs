//! Kubeconfig files: one cluster, one user, one context.
//! They are written as JSON, which every reader of YAML reads.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::certs::Identity;

/// How a user shows who they are.
pub(crate) enum Credential<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

/// Writes `folder/NAME.kubeconfig`; complete in itself, so that it can be copied away.
pub(crate) fn write(
    folder: &Path,
    name: &str,
    server: &str,
    ca: &Path,
    credential: &Credential<'_>,
) -> Result<PathBuf> {
    let user = match credential {
        Credential::Certificate(identity) => json!({
            "client-certificate-data": inline(&identity.certificate)?,
            "client-key-data": inline(&identity.key)?,
        }),
        Credential::Token(token) => json!({ "token": token }),
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "e2e", "cluster": { "server": server, "certificate-authority-data": inline(ca)? } }],
        "users": [{ "name": name, "user": user }],
        "contexts": [{ "name": "e2e", "context": { "cluster": "e2e", "user": name } }],
        "current-context": "e2e",
    });
    let path = folder.join(format!("{name}.kubeconfig"));
    let text = serde_json::to_string_pretty(&config).context("cannot write a kubeconfig")?;
    fs_err::write(&path, text)?;
    Ok(path)
}

fn inline(path: &Path) -> Result<Value> {
    Ok(Value::String(STANDARD.encode(fs_err::read(path)?)))
}
