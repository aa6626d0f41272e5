//! What was published, and what came out.

use std::iter;

use serde::{Serialize, Serializer};

use crate::report::format;

/// A published value, in the unit of its table if nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Published {
    /// This, as closely as the text says.
    About(f64),
    /// The largest that was seen is about this.
    UpTo(f64),
    /// Always less.
    Below(f64),
    /// What each of those that are counted takes, in ns.
    Each(f64),
    /// The text has words for it, and no number.
    Said(&'static str),
    /// Nothing.
    Nothing,
}

impl Published {
    /// The number, if there is one.
    pub fn value(self) -> Option<f64> {
        match self {
            Published::About(value) | Published::UpTo(value) | Published::Below(value) => Some(value),
            Published::Each(_) | Published::Said(_) | Published::Nothing => None,
        }
    }

    /// For people.
    pub fn show(self, unit: Unit) -> String {
        match self {
            Published::About(value) => unit.show(value),
            Published::UpTo(value) => format!("up to {}", unit.show(value)),
            Published::Below(value) => format!("< {}", unit.show(value)),
            Published::Each(ns) => format!("{} each", Unit::Time.show(ns)),
            Published::Said(words) => words.to_owned(),
            Published::Nothing => "-".to_owned(),
        }
    }
}

/// As a number, or as words, or as nothing.
impl Serialize for Published {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match (self, self.value()) {
            (Published::Said(words), _) => to.serialize_str(words),
            (Published::Each(ns), _) => to.serialize_f64(*ns),
            (_, Some(value)) => to.serialize_f64(value),
            (_, None) => to.serialize_none(),
        }
    }
}

/// What a table's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Times in ns.
    #[serde(rename = "ns")]
    Time,
    /// So many times something.
    #[serde(rename = "times")]
    Times,
    /// Parts of a whole.
    #[serde(rename = "part")]
    Part,
    /// So many a second.
    #[serde(rename = "per_second")]
    Rate,
}

impl Unit {
    /// A value for people.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Time => format::round_time(value.round() as u64),
            Unit::Times => format::ratio(value),
            Unit::Part => format::percent(value),
            Unit::Rate => format::rate(value),
        }
    }
}

/// One value.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Under which circumstances.
    pub setting: String,
    /// Under which policy.
    pub policy: &'static str,
    /// What was published.
    pub published: Published,
    /// What came out.
    pub ours: f64,
}

/// One part of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What the values are.
    pub caption: String,
    /// Their unit.
    pub unit: Unit,
    /// In the order of the figure.
    pub rows: Vec<Row>,
    /// What the published values are called, if they are not just published.
    pub published_head: &'static str,
    /// A column of our values for each policy: nothing was published.
    #[serde(skip)]
    pub by_policy: bool,
    /// The last column where it is not ours over the published.
    #[serde(skip)]
    pub third: Option<Third>,
}

/// A column that is computed of each row.
pub type Third = (&'static str, fn(&Row) -> String);

impl Table {
    /// Published values beside ours.
    pub fn new(caption: impl Into<String>, unit: Unit, rows: Vec<Row>) -> Table {
        let (caption, published_head) = (caption.into(), "published");
        Table { caption, unit, rows, published_head, by_policy: false, third: None }
    }

    /// Our values, with a column for each policy.
    pub fn by_policy(caption: impl Into<String>, unit: Unit, rows: Vec<Row>) -> Table {
        Table { by_policy: true, ..Table::new(caption, unit, rows) }
    }

    /// How many columns have names in them.
    pub fn names(&self) -> usize {
        if self.by_policy { 1 } else { 2 }
    }

    /// What is shown: the head, and then as many cells in each row.
    pub fn cells(&self) -> Vec<Vec<String>> {
        if self.by_policy {
            return self.cells_by_policy();
        }
        let third = self.third.map_or("ratio", |(head, _)| head);
        let head = ["setting", "scheduler", self.published_head, "ours", third].map(str::to_owned);
        let row = |row: &Row| {
            let (published, ours) = (row.published.show(self.unit), self.unit.show(row.ours));
            vec![row.setting.clone(), row.policy.to_owned(), published, ours, self.third(row)]
        };
        iter::once(head.to_vec()).chain(self.rows.iter().map(row)).collect()
    }

    fn cells_by_policy(&self) -> Vec<Vec<String>> {
        let (mut settings, mut policies) = (Vec::new(), Vec::new());
        for row in &self.rows {
            if !settings.contains(&row.setting.as_str()) {
                settings.push(&row.setting);
            }
            if !policies.contains(&row.policy) {
                policies.push(row.policy);
            }
        }
        let cell = |setting: &str, policy: &str| {
            let found = self.rows.iter().find(|row| row.setting == setting && row.policy == policy);
            found.map_or("-".to_owned(), |row| self.unit.show(row.ours))
        };
        let row = |setting: &str| {
            let cells = policies.iter().map(|policy| cell(setting, policy));
            iter::once(setting.to_owned()).chain(cells).collect()
        };
        let head = iter::once("setting").chain(policies.iter().copied()).map(str::to_owned).collect();
        iter::once(head).chain(settings.into_iter().map(row)).collect()
    }

    /// The last column of a row.
    fn third(&self, row: &Row) -> String {
        match (self.third, row.published.value()) {
            (Some((_, third)), _) => third(row),
            (None, Some(published)) if published > 0.0 => format::ratio(row.ours / published),
            (None, _) => "-".to_owned(),
        }
    }
}
