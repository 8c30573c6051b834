// Renders a chart's templates as Helm does, with the functions that Headgate's chart uses.
//
// Arguments: the folder of the templates. Standard input: a JSON object with Values, Chart and
// Release. Standard output: a JSON object, each file's name with its text.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"text/template"
)

func toJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

func orDefault(fallback, value any) any {
	if found := reflect.ValueOf(value); !found.IsValid() || found.IsZero() {
		return fallback
	}
	return value
}

func nindent(spaces int, text string) string {
	pad := strings.Repeat(" ", spaces)
	return "\n" + pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

func trunc(size int, text string) string {
	return text[:min(size, len(text))]
}

func main() {
	var given map[string]any
	decoder := json.NewDecoder(os.Stdin)
	decoder.UseNumber()
	if err := decoder.Decode(&given); err != nil {
		log.Fatal(err)
	}
	chart := template.New("chart").Option("missingkey=error")
	chart.Funcs(template.FuncMap{
		"default":    orDefault,
		"nindent":    nindent,
		"quote":      func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"sha256sum":  func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
		"toJson":     toJSON,
		"trimSuffix": func(end, text string) string { return strings.TrimSuffix(text, end) },
		"trunc":      trunc,
		"include": func(name string, data any) (string, error) {
			var out bytes.Buffer
			err := chart.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
	})
	if _, err := chart.ParseGlob(filepath.Join(os.Args[1], "*")); err != nil {
		log.Fatal(err)
	}
	made := map[string]string{}
	for _, one := range chart.Templates() {
		if filepath.Ext(one.Name()) != ".yaml" && filepath.Ext(one.Name()) != ".txt" {
			continue
		}
		var out bytes.Buffer
		if err := chart.ExecuteTemplate(&out, one.Name(), given); err != nil {
			log.Fatal(err)
		}
		made[one.Name()] = out.String()
	}
	if err := json.NewEncoder(os.Stdout).Encode(made); err != nil {
		log.Fatal(err)
	}
}
