module headgate/helmrender

go 1.26
