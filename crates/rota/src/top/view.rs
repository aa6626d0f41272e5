//! What is shown: the newest answer, the page, the order, the filter. And what keys do to it.

use std::cmp::Ordering;

use anyhow::Result;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rota_rules::status::{Status, TenantStatus};

use super::history::History;
use crate::commands::status::state;

/// One of the pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Page {
    /// All tenants, with the CPUs below.
    #[default]
    Tenants,
    /// One tenant, by its name.
    Tenant(String),
    /// All CPUs.
    Cpus,
    /// The keys.
    Help,
}

/// By what tenants are sorted: the largest first, names from A on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As the daemon tells.
    #[default]
    Number,
    Name,
    Received,
    Wanted,
    /// The longest wait, as a part of its bound where it has one.
    Wait,
    Missed,
    Lost,
}

impl Order {
    const ALL: [Order; 7] =
        [Order::Number, Order::Name, Order::Received, Order::Wanted, Order::Wait, Order::Missed, Order::Lost];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Order::Number => "number",
            Order::Name => "name",
            Order::Received => "received",
            Order::Wanted => "wanted",
            Order::Wait => "wait",
            Order::Missed => "missed",
            Order::Lost => "lost",
        }
    }

    fn next(self) -> Order {
        let place = Order::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Order::ALL[(place + 1) % Order::ALL.len()]
    }

    fn compare(self, one: &TenantStatus, other: &TenantStatus) -> Ordering {
        let larger = |value: fn(&TenantStatus) -> f64| value(other).total_cmp(&value(one));
        match self {
            Order::Number => Ordering::Equal,
            Order::Name => one.name.cmp(&other.name),
            Order::Received => larger(|tenant| tenant.received),
            Order::Wanted => larger(|tenant| tenant.wanted),
            Order::Wait => larger(wait_part).then(larger(|tenant| tenant.blackout_max_ns as f64)),
            Order::Missed => larger(|tenant| tenant.missed as f64),
            Order::Lost => larger(|tenant| tenant.lost_ns.total() as f64),
        }
    }
}

/// The longest wait as a part of its bound; 0 without one.
pub fn wait_part(tenant: &TenantStatus) -> f64 {
    tenant.bound_ns.map_or(0.0, |bound_ns| tenant.blackout_max_ns as f64 / bound_ns.max(1) as f64)
}

/// The state. It knows no terminal.
#[derive(Debug, Default)]
pub struct View {
    /// The newest answer of the daemon.
    pub status: Option<Status>,
    /// Why there is no newer one.
    pub failed: Option<String>,
    /// What was answered before.
    pub history: History,
    pub page: Page,
    pub order: Order,
    pub is_reversed: bool,
    /// Only tenants whose name, class or state has this in it.
    pub filter: String,
    /// The filter is being typed.
    pub is_typing: bool,
    /// The place of the chosen tenant among those shown.
    pub chosen: usize,
    /// The first CPU that is shown on its page.
    pub first_cpu: usize,
}

impl View {
    /// The daemon has answered, or not.
    pub fn answered(&mut self, answer: Result<Status>) {
        match answer {
            Ok(status) => {
                // Another daemon counts anew.
                let before = self.status.take().filter(|before| before.pid == status.pid);
                self.history.add(&status, before.as_ref());
                (self.status, self.failed) = (Some(status), None);
            }
            Err(error) => self.failed = Some(format!("{error:#}")),
        }
    }

    /// The tenants that the filter lets through, in order.
    pub fn tenants(&self) -> Vec<&TenantStatus> {
        let wanted = self.filter.to_lowercase();
        let is_wanted = |tenant: &&TenantStatus| {
            [tenant.name.as_str(), &tenant.class, state(tenant.state)]
                .iter()
                .any(|text| text.to_lowercase().contains(&wanted))
        };
        let mut tenants: Vec<&TenantStatus> =
            self.status.iter().flat_map(|status| &status.tenants).filter(is_wanted).collect();
        tenants.sort_by(|one, other| self.order.compare(one, other));
        if self.is_reversed {
            tenants.reverse();
        }
        tenants
    }

    /// Does what a key means. Says whether to end.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return true;
        }
        if self.is_typing {
            self.typed(key.code);
            return false;
        }
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Char('?' | 'h') => self.page = Page::Help,
            KeyCode::Char('c') => self.page = Page::Cpus,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('/') => (self.page, self.is_typing) = (Page::Tenants, true),
            KeyCode::Esc if self.page != Page::Tenants => self.page = Page::Tenants,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Enter if self.page == Page::Tenants => {
                if let Some(tenant) = self.tenants().get(self.chosen) {
                    self.page = Page::Tenant(tenant.name.clone());
                }
            }
            code => self.moved(code),
        }
        false
    }

    fn typed(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => (self.filter, self.is_typing) = (String::new(), false),
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
        self.chosen = 0;
    }

    /// Moves the choice, or the first CPU; to the one before or after on a tenant's page.
    fn moved(&mut self, code: KeyCode) {
        const PAGE: usize = 10;
        let is_cpus = self.page == Page::Cpus;
        let last = match is_cpus {
            true => self.status.as_ref().map_or(0, |status| status.cpus.len()),
            false => self.tenants().len(),
        };
        let last = last.saturating_sub(1);
        let place = if is_cpus { &mut self.first_cpu } else { &mut self.chosen };
        *place = match code {
            KeyCode::Up | KeyCode::Char('k') => place.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => *place + 1,
            KeyCode::PageUp => place.saturating_sub(PAGE),
            KeyCode::PageDown => *place + PAGE,
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return,
        }
        .min(last);
        if matches!(self.page, Page::Tenant(_))
            && let Some(tenant) = self.tenants().get(self.chosen)
        {
            self.page = Page::Tenant(tenant.name.clone());
        }
    }
}
