//! `quorate generate`: alert rules and a dashboard, shell completions and the manual, the latter
//! from the command line's own description.

mod alerts;
mod dashboard;

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Context;
use crate::args::{Cli, GenerateCommand};
use crate::failure::Failure;

/// Beside what clap knows: the names of topics and groups, asked of the cluster, where one is due.
const BASH_TOPICS: &str = r#"
_quorate_topics() {
    _quorate "$@"
    local word="${COMP_WORDS[COMP_CWORD]}" names
    [[ $word == -* ]] && return
    case " ${COMP_WORDS[*]:1:COMP_CWORD-1} " in
        *" produce "* | *" consume "* | *" topic describe "* | *" topic alter "* | \
            *" topic delete "* | *" topic add-partitions "* | *" topic delete-records "*)
            names="$(quorate topic list --json 2>/dev/null |
                sed -n 's/^ *"topic": "\(.*\)",$/\1/p')"
            COMPREPLY+=($(compgen -W "$names" -- "$word"))
            ;;
        *" group describe "* | *" group lag "* | *" group reset-offsets "* | \
            *" group delete-offsets "* | *" group delete "*)
            names="$(quorate group list --json 2>/dev/null |
                sed -n 's/^ *"group": "\(.*\)",$/\1/p')"
            COMPREPLY+=($(compgen -W "$names" -- "$word"))
            ;;
    esac
}
complete -F _quorate_topics -o bashdefault -o default quorate
"#;

pub(crate) fn run(context: &Context, command: GenerateCommand) -> Result<(), Failure> {
    match command {
        GenerateCommand::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "quorate", &mut script);
            if shell == Shell::Bash {
                script.extend(BASH_TOPICS.as_bytes());
            }
            io::stdout().write_all(&script)?;
            Ok(())
        }
        GenerateCommand::Man { directory } => man(context, &directory),
        GenerateCommand::Alerts { stalled_after, behind, patience, job } => {
            let rules = alerts::rules(&alerts::Bounds { stalled_after, behind, patience, job });
            context.output.line(rules.trim_end())
        }
        GenerateCommand::Dashboard => context.output.json(&dashboard::dashboard()),
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
