//! Memory of values that the conversion copies into several objects.

use serde_json::Value;

use crate::footprint::Footprint;

/// Maximum memory of all copies together, in bytes.
pub(in crate::format::registry) const LIMIT: u64 = 4 << 20;

/// Memory of the objects that one permission, deployment or webhook creates, in bytes: a
/// ServiceAccount, a role, a binding or a Deployment. Values that are moved into these objects are
/// not counted.
pub(in crate::format::registry) const CREATED: u64 = 24 << 10;

/// Memory of the copies. Copies above the limit are null, and the conversion fails.
#[derive(Debug, Default)]
pub(in crate::format::registry) struct Additions(Footprint);

impl Additions {
    /// Returns a copy of `value`, and counts its memory. Above the limit, returns null.
    pub(in crate::format::registry) fn copy(&mut self, value: &Value) -> Value {
        if self.exceed_limit() {
            return Value::Null;
        }
        self.0 = self.0.plus(Footprint::of(value)).plus(Footprint(64));
        if self.exceed_limit() {
            return Value::Null;
        }
        value.clone()
    }

    /// Copies each value with [`Self::copy`].
    pub(in crate::format::registry) fn copies(&mut self, values: &[Value]) -> Vec<Value> {
        values.iter().map(|value| self.copy(value)).collect()
    }

    /// Counts the memory of a generated value: `bytes`.
    pub(in crate::format::registry) fn add(&mut self, bytes: u64) {
        self.0 = self.0.plus(Footprint(bytes));
    }

    /// Returns `true` if the copies need more than the limit.
    pub(in crate::format::registry) fn exceed_limit(&self) -> bool {
        self.0.0 > LIMIT
    }
}
