package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// readTrace reads little-endian int32 ids, one for each access. A file whose name
// ends in .xz is decompressed by the program xz.
func readTrace(name string) ([]uint32, error) {
	if name == "" {
		return nil, errors.New("-scenario trace needs -trace FILE, with little-endian int32 ids, plain or .xz")
	}
	var raw []byte
	var err error
	if strings.HasSuffix(name, ".xz") {
		raw, err = unxz(name)
	} else {
		raw, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, err
	}
	if len(raw) == 0 || len(raw)%4 != 0 {
		return nil, fmt.Errorf("-trace: %s holds %d bytes, which are no int32 ids", name, len(raw))
	}
	ids := make([]uint32, len(raw)/4)
	for i := range ids {
		ids[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return ids, nil
}

func unxz(name string) ([]byte, error) {
	program, err := exec.LookPath("xz")
	if err != nil {
		return nil, fmt.Errorf("-trace: %s needs the program xz to decompress it: install it (Debian: apt-get install xz-utils) "+
			"or decompress the file (%w)", name, err)
	}
	raw, err := exec.Command(program, "-dc", "--", name).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("-trace: %w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return raw, err
}
