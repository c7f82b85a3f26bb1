"""What works on this machine. To be imported it needs Python alone, as anything may be broken."""
