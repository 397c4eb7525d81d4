//! Objects that are written into etcd without validation by the API server, like objects that an
//! earlier release stored.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Cluster;
use crate::host::plain_http;

impl Cluster {
    /// Stores `object` in etcd under `/registry/{key}`. The API server can read JSON as well as its
    /// own binary encoding. Returns an error for an existing cluster.
    pub async fn store(&self, key: &str, object: &Value) -> Result<()> {
        let store = self
            .store
            .as_ref()
            .context("tests do not write to the etcd of an existing cluster")?;
        let put = json!({
            "key": STANDARD.encode(format!("/registry/{key}")),
            "value": STANDARD.encode(object.to_string()),
        });
        let answer = plain_http::client()?
            .post(format!("{store}/v3/kv/put"))
            .body(put.to_string())
            .send()
            .await?;
        answer
            .error_for_status()
            .with_context(|| format!("etcd does not store {key}"))?;
        Ok(())
    }
}
