//go:build !linux

package main

import "syscall"

func dieWithTest() *syscall.SysProcAttr { return nil }
