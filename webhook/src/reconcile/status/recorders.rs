//! Recorders of Events, one for each note: the recorder of the client library counts Events that differ in their note alone as one, with the note of
//! the first.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bundle_api::names;
use kube::Client;
use kube::runtime::events::Recorder;

/// The most recorders at a time. Beyond it all are forgotten, so that the next Events are not counted with former ones.
const LIMIT: usize = 500;

/// Uid of the object, reason and note of an Event.
type Key = (Option<String>, String, String);

/// Recorders that count equal Events alone as one.
pub(in crate::reconcile) struct Recorders {
    client: Client,
    by_event: Mutex<HashMap<Key, Recorder>>,
}

impl Recorders {
    /// No Events yet.
    pub(in crate::reconcile) fn new(client: Client) -> Self {
        Self {
            client,
            by_event: Mutex::default(),
        }
    }

    /// Returns the recorder for Events with this note about the object with this uid.
    pub(in crate::reconcile) fn get(
        &self,
        uid: Option<&str>,
        reason: &str,
        note: &str,
    ) -> Recorder {
        let key = (uid.map(str::to_owned), reason.to_owned(), note.to_owned());
        let mut recorders = self.by_event.lock().unwrap_or_else(PoisonError::into_inner);
        if recorders.len() >= LIMIT && !recorders.contains_key(&key) {
            recorders.clear();
        }
        recorders
            .entry(key)
            .or_insert_with(|| Recorder::new(self.client.clone(), names::FIELD_MANAGER.into()))
            .clone()
    }
}
