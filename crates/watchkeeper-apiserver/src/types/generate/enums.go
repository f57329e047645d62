// Enum values of string types: the constants of each type that the source marks with `+enum`.
package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Values by package, then by type.
var enums = map[string]map[string][]string{}

func values(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.String || t.PkgPath() == "" {
		return nil
	}
	if enums[t.PkgPath()] == nil {
		enums[t.PkgPath()] = readEnums(t.PkgPath())
	}
	return enums[t.PkgPath()][t.Name()]
}

func readEnums(path string) map[string][]string {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", path).Output()
	die(err)
	sources := func(info fs.FileInfo) bool { return !strings.HasSuffix(info.Name(), "_test.go") }
	packages, err := parser.ParseDir(token.NewFileSet(), strings.TrimSpace(string(dir)), sources, parser.ParseComments)
	die(err)
	marked, constants := map[string]bool{}, map[string][]string{}
	for _, source := range packages {
		ast.Inspect(source, func(node ast.Node) bool {
			declaration, ok := node.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, spec := range declaration.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					doc := declaration.Doc.Text() + spec.Doc.Text()
					marked[spec.Name.Name] = slices.Contains(strings.Fields(doc), "+enum")
				case *ast.ValueSpec:
					for _, value := range spec.Values {
						name, text := constant(spec.Type, value)
						constants[name] = append(constants[name], text)
					}
				}
			}
			return false
		})
	}
	found := map[string][]string{}
	for name := range marked {
		// A constant without a literal value: omit the whole type, as a partial list would be wrong.
		if marked[name] && !slices.Contains(constants[name], unknown) {
			found[name] = constants[name]
			slices.Sort(found[name])
		}
	}
	return found
}

const unknown = "?"

// Returns the type and value of a constant, written as `Name Type = "text"` or as `Name = Type("text")`.
func constant(declared, value ast.Expr) (string, string) {
	if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 1 {
		declared, value = call.Fun, call.Args[0]
	}
	name, ok := declared.(*ast.Ident)
	if !ok {
		return "", unknown
	}
	literal, ok := value.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return name.Name, unknown
	}
	text, err := strconv.Unquote(literal.Value)
	die(err)
	return name.Name, text
}
