//! `quorate generate`: shell completions and the manual, from the command line's own description.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;

use super::Context;
use crate::args::{Cli, GenerateCommand};
use crate::failure::Failure;

pub(crate) fn run(context: &Context, command: GenerateCommand) -> Result<(), Failure> {
    match command {
        GenerateCommand::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "quorate", &mut script);
            io::stdout().write_all(&script)?;
            Ok(())
        }
        GenerateCommand::Man { directory } => man(context, &directory),
    }
}

fn man(context: &Context, directory: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::new(format!("the manual cannot be written to {}: {error}", directory.display()))
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), directory).map_err(failed)?;
    if !context.output.json {
        let shown = directory.display();
        context.output.note(&format!("wrote the manual; read it with `man -l {shown}/quorate.1`"));
    }
    Ok(())
}
