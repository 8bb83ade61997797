//! Objects of one kind, by name.

use std::collections::HashMap;

use kube::ResourceExt;

/// Objects by name, in one slice, as reports read them.
#[derive(Clone, Debug)]
pub(super) struct Shelf<K> {
    objects: Vec<K>,
    places: HashMap<String, usize>,
}

impl<K> Default for Shelf<K> {
    fn default() -> Self {
        Self { objects: Vec::new(), places: HashMap::new() }
    }
}

impl<K: ResourceExt> Shelf<K> {
    /// The objects, in no order.
    pub(super) fn objects(&self) -> &[K] {
        &self.objects
    }

    /// The object of this name.
    pub(super) fn get(&self, name: &str) -> Option<&K> {
        self.places.get(name).and_then(|place| self.objects.get(*place))
    }

    /// Adds an object, or replaces the one of its name.
    pub(super) fn put(&mut self, object: K) {
        let name = object.name_any();
        let known = self.places.get(&name).and_then(|place| self.objects.get_mut(*place));
        if let Some(known) = known {
            *known = object;
        } else {
            self.places.insert(name, self.objects.len());
            self.objects.push(object);
        }
    }

    /// Removes the object of this name.
    pub(super) fn remove(&mut self, name: &str) {
        let Some(place) = self.places.remove(name) else { return };
        self.objects.swap_remove(place);
        if let Some(moved) = self.objects.get(place) {
            self.places.insert(moved.name_any(), place);
        }
    }

    /// Removes the objects whose names are not kept, and says whether there were any.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) -> bool {
        let gone: Vec<String> = self.places.keys().filter(|name| !is_kept(name)).cloned().collect();
        for name in &gone {
            self.remove(name);
        }
        !gone.is_empty()
    }

    /// Gives the objects to a function that needs to own them, and takes them back.
    pub(super) fn lend<R>(&mut self, to: impl FnOnce(Vec<K>) -> (R, Vec<K>)) -> R {
        let (result, objects) = to(std::mem::take(&mut self.objects));
        self.objects = objects;
        result
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}
