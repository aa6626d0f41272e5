//! One TOML table that knows its name and place.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Errors, File};
use crate::quote;

/// One table of a file: reads its keys, and says in errors which key and where.
#[derive(Clone)]
pub struct Table<'a> {
    pub(super) file: &'a File<'a>,
    name: String,
    offset: usize,
    entries: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    /// `name` is the path of keys that lead to it, empty for the file itself; it begins at byte `offset`.
    pub(super) fn new(
        file: &'a File<'a>,
        name: impl Into<String>,
        offset: usize,
        entries: &'a DeTable<'a>,
    ) -> Table<'a> {
        Table { file, name: name.into(), offset, entries }
    }

    /// The value of `key`, if it is there.
    pub fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.entries.get(key)
    }

    /// The value of `key` as the file has it, quotes included; nothing if it is absent.
    pub(super) fn written(&self, key: &str) -> &'a str {
        self.get(key).and_then(|value| self.file.text.get(value.span())).unwrap_or_default()
    }

    /// Whether `key` is there.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of `key` as `parse` understands it; none if it is absent or wrong, and then the error is kept.
    pub fn read<T>(
        &self,
        key: &str,
        errors: &mut Errors,
        parse: impl FnOnce(&DeValue<'a>) -> Result<T, String>,
    ) -> Option<T> {
        parse(self.get(key)?.get_ref()).map_err(|message| errors.push(self.error(key, message))).ok()
    }

    /// The table at `key`, if it is there and is one.
    pub fn table(&self, key: &str, mend: &str, errors: &mut Errors) -> Option<Table<'a>> {
        let value = self.get(key)?;
        if let DeValue::Table(entries) = value.get_ref() {
            return Some(Table::new(self.file, self.path(key), value.span().start, entries));
        }
        let got = super::value::show(value.get_ref());
        errors.push(self.error(key, format!("{got} is no table; write {mend}")));
        None
    }

    /// The tables of the list at `key`, if it is there and is one.
    pub fn tables(&self, key: &str, errors: &mut Errors) -> Vec<Table<'a>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let mut refuse = |item: &Spanned<DeValue>| {
            let got = super::value::show(item.get_ref());
            let message = format!("{got} is no list of tables; write [[{}]]", self.path(key));
            errors.push(self.file.error(item.span().start, self.path(key), message));
        };
        let DeValue::Array(items) = value.get_ref() else {
            refuse(value);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::Table(entries) => {
                    tables.push(Table::new(self.file, self.path(key), item.span().start, entries));
                }
                _ => refuse(item),
            }
        }
        tables
    }

    /// An error at the value of `key`, or at the table's head if the key is absent.
    pub fn error(&self, key: &str, message: impl Into<String>) -> ConfigError {
        let offset = self.get(key).map_or(self.offset, |value| value.span().start);
        self.file.error(offset, self.path(key), message)
    }

    /// The line that an error of `key` would name.
    pub(super) fn line(&self, key: &str) -> usize {
        self.file.line(self.get(key).map_or(self.offset, |value| value.span().start))
    }

    /// Whether `key` is there, and if not, that it is missing: unless a mistyped key stands in its place, for then
    /// [`Table::refuse_unknown`] has said all.
    pub fn require(&self, key: &str, known: &[&str], mend: &str, errors: &mut Errors) -> bool {
        let mistyped = |found: &str| !known.contains(&found) && nearest(found, known) == Some(key);
        if !self.has(key) && !self.entries.keys().any(|found| mistyped(found.get_ref())) {
            errors.push(self.error(key, format!("missing; write {mend}")));
        }
        self.has(key)
    }

    /// Reports every key that is none of `known`.
    pub fn refuse_unknown(&self, known: &[&str], errors: &mut Errors) {
        for key in self.entries.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let name = key.get_ref();
            let shown = if name.len() <= 60 && is_bare(name) { name.to_string() } else { quote(name) };
            let mend = match nearest(name, known) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("the keys here are {}", known.join(", ")),
            };
            errors.push(self.file.error(key.span().start, self.path(&shown), format!("unknown key; {mend}")));
        }
    }

    fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }
}

/// Whether TOML lets this key stand without quotes.
fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// The known key that a mistyped one most likely stands for.
fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    if key.len() > 40 {
        return None;
    }
    let distance = |candidate: &str| strsim::damerau_levenshtein(&key.to_lowercase(), candidate);
    let near = known.iter().copied().min_by_key(|candidate| distance(candidate))?;
    (distance(near) * 3 <= near.len().max(3)).then_some(near)
}
