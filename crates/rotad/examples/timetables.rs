//! Sends VMs what is in a file, as the daemon does: `timetables FILE CONTEXT-ID`. For the lab, in whose machines there
//! is one scheduler at a time, and so no daemon beside a guest's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use rota_table::NO_TIMETABLE;
use rotad::vsock::{Teller, Told, context_id, listen};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = PathBuf::from(arguments.next().context("name the file")?);
    let id: u32 = arguments.next().and_then(|id| id.parse().ok()).context("name the context id")?;
    let teller = Teller::start(listen().context("listening")?, context_id)?;
    loop {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|_| NO_TIMETABLE.to_owned());
        teller.tell(BTreeMap::from([(id, Told { text: text.into(), is_there: Box::new(|| true) })]));
        std::thread::sleep(Duration::from_millis(50));
    }
}
