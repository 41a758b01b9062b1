package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// The fields of SPDX 2.3 that say which modules a binary is made of.
// https://spdx.github.io/spdx-spec/v2.3/
type (
	spdx struct {
		Version       string         `json:"spdxVersion"`
		License       string         `json:"dataLicense"` // of the document
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []spdxPackage  `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string      `json:"SPDXID"`
		Name      string      `json:"name"`
		Version   string      `json:"versionInfo"`
		File      string      `json:"packageFileName,omitempty"`
		Download  string      `json:"downloadLocation"`
		Analyzed  bool        `json:"filesAnalyzed"`
		Checksums []checksum  `json:"checksums,omitempty"`
		Source    string      `json:"sourceInfo,omitempty"`
		Concluded string      `json:"licenseConcluded"`
		Declared  string      `json:"licenseDeclared"`
		Copyright string      `json:"copyrightText"`
		Refs      []reference `json:"externalRefs"`
		Purpose   string      `json:"primaryPackagePurpose"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const (
	unknown    = "NOASSERTION"
	documentID = "SPDXRef-DOCUMENT"
	programID  = "SPDXRef-Program"
)

// described is the archive that an SBOM is about.
type described struct {
	archive, sum string
	created      time.Time
}

// sbomOf lists the modules that a binary is made of, and the standard library.
func sbomOf(info *buildinfo.BuildInfo, of described) ([]byte, error) {
	program := module(programID, info.Main.Path, info.Main.Version)
	program.File, program.Purpose = of.archive, "APPLICATION"
	program.Checksums = []checksum{{"SHA256", of.sum}}
	// Go's lists of vulnerabilities call it stdlib.
	standard := module("SPDXRef-Module-0", "stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	d := spdx{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: of.archive,
		// Unique, as the specification wants it, and the same for the same archive.
		Namespace:     "https://" + info.Main.Path + "/spdx/" + url.PathEscape(of.archive) + "-" + of.sum,
		Creation:      creation{of.created.UTC().Format(time.RFC3339), []string{"Tool: " + info.Main.Path + "/hack/release"}},
		Packages:      []spdxPackage{program, standard},
		Relationships: []relationship{{documentID, "DESCRIBES", programID}, {programID, "DEPENDS_ON", standard.ID}},
	}
	for i, dep := range info.Deps { // Go sorts them
		if dep.Replace != nil {
			return nil, fmt.Errorf("go.mod replaces %s: a release is made of what others can download: remove that line", dep.Path)
		}
		p := module(fmt.Sprintf("SPDXRef-Module-%d", i+1), dep.Path, dep.Version)
		// A hash of names and contents, not of a file that could be downloaded.
		p.Source = "go.sum " + dep.Sum
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, relationship{programID, "DEPENDS_ON", p.ID})
	}
	b, err := json.MarshalIndent(d, "", "  ")
	return append(b, '\n'), err
}

func module(id, path, version string) spdxPackage {
	return spdxPackage{
		ID: id, Name: path, Version: version, Download: unknown,
		Concluded: unknown, Declared: unknown, Copyright: unknown, Purpose: "LIBRARY",
		Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + url.QueryEscape(version)}},
	}
}
