"""The wire: commands, frames, typed headers and bodies, connections."""
