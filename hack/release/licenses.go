package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licensesFile is the name of the file with the licenses of all that is linked.
const licensesFile = "THIRD-PARTY-LICENSES"

// licenseFile matches the names of files that a license asks to pass on.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)([-._].*)?$`)

// licenses returns the licenses and notices of Go and of the modules that the program links on
// a platform. A text that several have stands once. A module without a license is an error.
func (r release) licenses(ctx context.Context, t target) (string, error) {
	goroot, err := r.command(ctx, nil, "go", "env", "GOROOT")
	if err != nil {
		return "", err
	}
	out, err := r.command(ctx, t.env(), "go", "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}\t{{$.Dir}}\n{{end}}{{end}}", r.pkg)
	if err != nil {
		return "", err
	}
	all := collection{}
	found, err := all.add("Go", strings.TrimSpace(string(goroot)))
	if err == nil && !found {
		err = fmt.Errorf("there is no license of Go in %s", goroot)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 3 {
			continue // between two packages
		}
		module, root, dir := fields[0], fields[1], fields[2]
		found, moduleErr := all.add(module, root)
		if moduleErr == nil && !found {
			moduleErr = fmt.Errorf("the module %s has no license in %s", module, root)
		}
		err = errors.Join(err, moduleErr)
		// What was taken from others has its license beside it.
		for ; len(dir) > len(root); dir = filepath.Dir(dir) {
			_, folderErr := all.add(module+", "+filepath.ToSlash(dir[len(root)+1:]), dir)
			err = errors.Join(err, folderErr)
		}
	}
	return all.String(), err
}

// collection has whose a text is, by the text.
type collection map[string][]string

// add adds the licenses and notices in a folder, and says whether there are any.
func (c collection) add(holder, dir string) (bool, error) {
	texts, err := licensesIn(dir)
	for _, text := range texts {
		if !slices.Contains(c[text], holder) {
			c[text] = append(c[text], holder)
		}
	}
	return len(texts) > 0, err
}

// String returns every text below the names of those who have it.
func (c collection) String() string {
	for _, holders := range c {
		slices.Sort(holders)
	}
	first := func(a, b string) int { return cmp.Or(slices.Compare(c[a], c[b]), cmp.Compare(a, b)) }
	var b strings.Builder
	b.WriteString("This program has parts that others wrote, under these licenses.\n")
	for _, text := range slices.SortedFunc(maps.Keys(c), first) {
		fmt.Fprintf(&b, "\n%s\n\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(c[text], "\n"), text)
	}
	return b.String()
}

// licensesIn are the texts of the license files in one folder.
func licensesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenseFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")))
	}
	return texts, nil
}
