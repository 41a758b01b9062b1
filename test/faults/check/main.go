// Check reads history files and checks each as if nobody had checked it before.
// It prints a line for each file and ends with status 1 when one is illegal.
//
//	go -C test run ./faults/check [-picture] FILE...
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/sailplane-dev/sailplane/test/faults/history"
	"github.com/sailplane-dev/sailplane/test/faults/verify"
)

func main() {
	picture := flag.Bool("picture", false, "write FILE.html, which shows the operations in time")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: check [-picture] FILE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	illegal := 0
	for _, path := range flag.Args() {
		legal, err := check(path, *picture)
		if err != nil {
			fmt.Fprintln(os.Stderr, "check:", err)
			os.Exit(2)
		}
		if !legal {
			illegal++
		}
	}
	if illegal > 0 {
		os.Exit(1)
	}
}

// check prints what is wrong with the history of one file.
func check(path string, picture bool) (legal bool, err error) {
	h, err := history.Read(path)
	if err != nil {
		return false, err
	}
	found := verify.History(h)
	verdict := "legal"
	if len(found) > 0 {
		texts := make([]string, len(found))
		for i, v := range found {
			texts[i] = v.String()
		}
		verdict = "ILLEGAL: " + strings.Join(texts, "; ")
	}
	fmt.Printf("%s: %s/%s seed %d, %d lines: %s\n", path, h.Round.Engine, h.Round.Fault, h.Round.Seed, len(h.Ops), verdict)
	if picture {
		if err := verify.WritePicture(h, path+".html"); err != nil {
			return false, err
		}
	}
	return len(found) == 0, nil
}
