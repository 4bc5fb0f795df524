package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// Exit codes, as INTERFACE promises them.
const (
	exitOK     = 0
	exitDenied = 1
	exitError  = 2
)

// errDenied ends a check that was denied: no error to tell, but an exit code.
var errDenied = errors.New("denied")

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its world as arguments; it returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root, comesLater(args)
	if err == nil {
		cmd, err = root.ExecuteContextC(context.Background())
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDenied):
		return exitDenied
	}
	fmt.Fprintf(stderr, "spillgate: %v\n", err)
	if errors.As(err, new(usageError)) {
		fmt.Fprintf(stderr, "Try: %s --help\n", cmd.CommandPath())
	}
	return exitError
}

// usageError is a mistake in the command line itself.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage makes the errors of cobra's argument checks usageErrors.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
