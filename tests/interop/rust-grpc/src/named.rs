//! Running clients of one kind under the names that the test gave them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::values::{text, Failure};

pub struct Named<T> {
    items: Mutex<HashMap<String, Arc<T>>>,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Named { items: Mutex::default() }
    }
}

impl<T> Named<T> {
    pub fn put(&self, about: &Value, item: T) {
        self.items.lock().unwrap().insert(text(&about["name"]).to_string(), Arc::new(item));
    }

    pub fn get(&self, about: &Value) -> Result<Arc<T>, Failure> {
        let name = text(&about["name"]);
        self.items.lock().unwrap().get(name).cloned().ok_or_else(|| not_running(name))
    }

    /// Takes out a client that no command uses any more: the official client is consumed as it shuts down.
    pub fn remove(&self, about: &Value) -> Result<T, Failure> {
        let name = text(&about["name"]);
        let taken = self.items.lock().unwrap().remove(name).ok_or_else(|| not_running(name))?;
        Arc::try_unwrap(taken).map_err(|_| Failure::new("Busy", format!("{name} is still at work")))
    }
}

fn not_running(name: &str) -> Failure {
    Failure::new("NotRunning", format!("{name} is not running"))
}
