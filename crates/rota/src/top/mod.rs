//! `rota top`: the daemon's status on a terminal, again and again.
//!
//! `view` is what is shown and what keys do, without a terminal. `history` has the last minutes. `draw` and below it
//! are the pages. Here is the loop: a thread asks the daemon, so that one that is busy does not delay keys.

mod draw;
mod history;
#[cfg(test)]
mod tests;
mod view;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use rota_rules::status::Status;
use rotad::server::ask;

use draw::Look;
use view::View;

/// How often the daemon is asked. It counts as often.
const ASKED_EVERY: Duration = Duration::from_secs(1);
/// How soon an answer is shown.
const SHOWN_WITHIN: Duration = Duration::from_millis(50);

/// Shows the status until the user has seen enough.
pub fn run(socket: &Path) -> Result<()> {
    // The convention of no-color.org: set, and not empty.
    let has_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let answers = ask_again_and_again(socket.to_owned());
    let mut terminal = ratatui::try_init().context("setting up the terminal")?;
    let result = show(&mut terminal, &answers, &Look::new(has_color));
    ratatui::restore();
    result
}

fn ask_again_and_again(socket: PathBuf) -> Receiver<Result<Status>> {
    let (sender, answers) = channel();
    std::thread::spawn(move || {
        // Ends when nobody listens any more.
        while sender.send(ask(&socket)).is_ok() {
            std::thread::sleep(ASKED_EVERY);
        }
    });
    answers
}

fn show(terminal: &mut DefaultTerminal, answers: &Receiver<Result<Status>>, look: &Look) -> Result<()> {
    let mut view = View::default();
    loop {
        terminal.draw(|frame| draw::draw(frame, &mut view, look)).context("drawing")?;
        // Until there is something new to show.
        loop {
            if event::poll(SHOWN_WITHIN).context("waiting for a key")? {
                if let Event::Key(key) = event::read().context("reading a key")?
                    && view.key(key)
                {
                    return Ok(());
                }
                break;
            }
            if let Some(answer) = answers.try_iter().last() {
                view.answered(answer);
                break;
            }
        }
    }
}
